"""Commands about all that is kept, and the data of people in it."""
