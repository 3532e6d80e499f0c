"""What flows through the house: types, wire types, protocols, errors and the clock. Standard library and numpy only."""
