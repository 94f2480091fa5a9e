"""The one exception for users' mistakes."""


class UserError(ValueError):
    """A mistake of the user's, told in one line: the value, the place and the choices.

    Everything else that the package raises is a defect of the package. Binaries print this error without a traceback
    and exit with status 2.
    """
