"""TabICL's ensemble members. They are fitted without tabicl or torch (`tabgrpc.data.fitting`) and tested to be upstream's to the bit."""

from tabgrpc.data.fitting import fit_members
from tabgrpc.data.members import Member, Members

__all__ = ["Member", "Members", "fit_members"]
