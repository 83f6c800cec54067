"""PyFlink's `datastream.formats`: re-exports, one module per format."""
