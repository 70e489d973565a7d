"""The sandbox, which confines the processes that handle untrusted text as far as the machine allows."""
