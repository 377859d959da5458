"""The contracts: states, descriptors, types, functions and the runtime context. No Spark in here."""
