"""The provisioning of tenants (queue ``provisioning``)."""
