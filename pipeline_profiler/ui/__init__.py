"""The app's page over saved profiler sessions; `frames` holds what it draws, without Streamlit."""
