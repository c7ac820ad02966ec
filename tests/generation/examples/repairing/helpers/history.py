class History:
    def __init__(self):
        self.messages = []

    def user(self, content):
        self.messages.append({"role": "user", "content": content})

    def assistant(self, content):
        self.messages.append({"role": "assistant", "content": content})
