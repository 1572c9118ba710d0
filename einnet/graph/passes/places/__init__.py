"""Places along dimensions that need not be computed: nobody reads them, they are like others, or all that is made of them is 0."""
