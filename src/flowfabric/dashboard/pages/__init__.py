"""The screens, one module each: what is read, how it is shaped, and the template that shows it."""
