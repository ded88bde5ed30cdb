"""What users read, in files that are compared word by word."""
