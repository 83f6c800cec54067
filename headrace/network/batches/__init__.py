"""Record batches on the wire: sealing, schemas, validation, compression, and the selection of channels for rows."""
