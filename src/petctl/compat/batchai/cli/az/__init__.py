"""The `az` stand-in: resource groups, storage accounts, shares and containers, as recipes of Batch AI type them."""
