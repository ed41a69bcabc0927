"""Commit log of a node: every batch written to the store, in order, in segment files.

    record    a batch as bytes; pure
    segment   one file and its header
    log       the files: append, sync, roll, read back a value
    replay    reading them at a start, and the cutting of a torn end
    usage     entries of each group in a segment, which tell when it may be deleted

It is the store's write-ahead log and the place of the entries at the same time: RocksDB holds each
entry's place here (`Pointer`), and everything else in a batch. So each byte of an entry is written
once, and one fdatasync makes a batch durable.
"""
