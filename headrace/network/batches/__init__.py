"""Record batches on their way: sealing, schemas, validation, compression, and which channel a row goes to."""
