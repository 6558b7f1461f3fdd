"""Any outside model or score file in; something that probes can ask out."""
