"""Programs that write, ended at every system call or by a power failure: what has the name afterwards."""
