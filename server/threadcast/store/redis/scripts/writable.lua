#!lua
-- writable: do nothing. The script does not have the flag no-writes, so the server refuses to start it with the same
-- errors as a write (memory full, disk error, read-only replica, too few replicas).
return 'OK'
