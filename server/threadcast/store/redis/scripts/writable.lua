#!lua
-- writable: does nothing. Because it is not flagged no-writes, the server refuses to start it with the same errors as a
-- write (memory full, disk error, read-only replica, too few replicas).
return 'OK'
