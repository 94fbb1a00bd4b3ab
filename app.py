"""The app for `streamlit run app.py -- RUN ...`; the pages are composed in `preflight_app`."""

from audit.ui.guard import mention_the_link
from preflight_app import draw_app

mention_the_link()
draw_app()
