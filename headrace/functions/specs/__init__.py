"""What each kind of operator is made of. Graphs carry these from the API to the operators; they are not for users."""
