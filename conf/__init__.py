"""Values of all configuration keys, as a Hydra config module; types and documentation are in rlvr/schema/."""
