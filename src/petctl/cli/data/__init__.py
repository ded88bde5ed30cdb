"""petctl data and petctl outputs: files in object stores, and what jobs have made."""
