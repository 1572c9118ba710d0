"""What runs a program beneath Python: native functions, the linker that binds them with generated code, and steps."""
