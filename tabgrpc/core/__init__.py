"""The pure core: geometry, ownership, reduction, stripes, plan and policy.

No grpc, no device, no clock, no file: everything here is a function of its arguments.
"""
