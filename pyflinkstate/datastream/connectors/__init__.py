"""Sources and sinks under PyFlink's names (``pyflink.datastream.connectors``)."""
