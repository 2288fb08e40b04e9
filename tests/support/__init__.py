"""What tests share: small worlds, deployments without a network, readers of golden vectors."""
