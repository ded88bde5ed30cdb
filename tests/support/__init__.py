"""What tests of several rooms stand on."""
