"""The library: cells, initializers, engines and drop-in modules. Knows no task and no configuration."""
