"""What clients were told while their lines were cut, checked against one execution's rules."""
