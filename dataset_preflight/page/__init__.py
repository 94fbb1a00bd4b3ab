"""The page that joins an audit, a profile and checks: may I start this training?"""
