"""What a checkpoint looks like in bytes. Pure codecs: no files, no clocks."""
