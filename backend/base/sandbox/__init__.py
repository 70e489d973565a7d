"""The sandbox: processes that handle untrusted text, confined as far as the machine allows."""
