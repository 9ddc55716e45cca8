"""What a person sees of FlowFabric in a browser."""
