"""The contracts: states, descriptors, types, functions and the runtime context. Nothing here uses Spark."""
