"""Checks of loaders, trainings and logs: their contract, their inputs and their runner."""
