"""The functions of the language. Every module here is read: each record in it is a function."""
