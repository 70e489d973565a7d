"""The sandbox: processes that read text nobody vouches for, confined as far as the machine allows."""
