"""What commands print about who may ask and what they did."""
