"""Long runs that measure or torment; none of them is part of the installed package."""
