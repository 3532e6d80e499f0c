"""Recorded signals as a source: tables of values, and tapes of what a predictor took."""
