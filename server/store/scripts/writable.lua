#!lua
-- writable: does nothing; but before it starts, the server refuses it with the same words as a write (memory full,
-- disk error, read-only replica, too few replicas), since it is not flagged no-writes.
return 'OK'
