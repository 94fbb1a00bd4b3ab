"""The pages of the app: each file is a page (`def page()`) or a part that pages share.

In: a link, clicks and keys. Out: Streamlit elements, and stored decisions. Pages hold no SQL
and no arithmetic; text from the data is never Markdown or HTML (`html`).
"""
