"""The commit log of a node: every batch written to the store, in order, in segment files.

    record    a batch as bytes; pure
    segment   one file and its header
    log       the files: append, sync, roll, read back a value
    replay    what a start reads of them, and the cutting of a torn end
    usage     whose entries a segment holds, so that it is known when it may go

It is the store's write-ahead log and the place of the entries at the same time: RocksDB
holds where an entry stands here (`Pointer`), and everything else that a batch says. So
each byte of an entry is written once, and one fdatasync makes a batch durable.
"""
