"""Reading topics straight from object storage, as Arrow: no broker is on the way of the data."""
