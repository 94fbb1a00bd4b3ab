"""The app for `streamlit run app.py -- RUN ...`; the pages are in `dataset_preflight.app`."""

from audit.ui.guard import mention_the_link
from dataset_preflight.app import draw_app

mention_the_link()
draw_app()
