"""What both sides of a deployment share: the bundle, messages, signing, certificates, transport, supervision."""
