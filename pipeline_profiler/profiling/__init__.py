"""Measurement and diagnosis of training time: record, measure, diagnose, monitor scripts."""
